#!/bin/sh
# Install Debian packages for commands or files that are missing:
#
#     apt_install.sh dstat promtool=prometheus /usr/include/stdio.h=libc6-dev
#
# Each argument is a command or a path, with "=package" if the package has another name.
# Works as root or with password-less sudo; otherwise it prints the command to run.
# Exits with 1 while something is still missing.
set -u

is_there() {
    case $1 in
        /*) [ -e "$1" ] ;;
        *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

missing_packages() {
    for word in "$@"; do
        is_there "${word%%=*}" || printf '%s ' "${word##*=}"
    done
}

packages=$(missing_packages "$@")
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing: ${packages}(no apt-get here; install them in your system's own way)." >&2
    exit 1
elif [ "$(id -u)" = 0 ]; then
    as_root=env
elif sudo -n true 2>/dev/null; then
    as_root='sudo -n env'
else
    echo "Missing: ${packages}- to get them: sudo apt-get install --no-install-recommends $packages" >&2
    exit 1
fi

# --no-remove: pcp and dstat conflict, and an installed one stays.
install() {
    $as_root DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
        --no-install-recommends --no-remove "$@" >/dev/null 2>"$log"
}

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
echo "Installing Debian packages: $packages..." >&2
for attempt in 1 2; do
    $as_root apt-get update -qq >/dev/null 2>"$log"
    # shellcheck disable=SC2086 # one word for each package
    install $packages && break
    if [ "$attempt" = 1 ]; then
        sleep 5
    else
        cat "$log" >&2
        # One missing package must not prevent the others.
        for package in $packages; do install "$package"; done
    fi
done

packages=$(missing_packages "$@")
[ -z "$packages" ] || { echo "Still missing: $packages" >&2; exit 1; }
