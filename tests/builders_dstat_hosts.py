"""A made-up machine that has dstat, dool or pcp-dstat, for whoever looks for them."""

from __future__ import annotations

from pathlib import Path

DSTAT = "#!{python}\n### Dstat\npluginpath = [\n    os.path.expanduser('~/.dstat/'),\n]\n"
DOOL = "#!{python}\nimport sys\nfrom dool import __main__\nsys.exit(__main__.__main())\n"
PCP = "#!/usr/bin/env pmpython\n# pcp-dstat\nfrom pcp import pmconfig\n"


class Machine:
    """A made-up machine under one folder, with a PATH of one folder."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.home = root / "home"
        self.environ = {"PATH": str(self.bin), "HOME": str(self.home)}

    def command(self, name: str, text: str, python: str = "python3.11") -> Path:
        interpreter = self.bin / python
        interpreter.touch(mode=0o755)
        path = self.bin / name
        path.write_text(text.format(python=interpreter), encoding="utf-8")
        path.chmod(0o755)
        return path

    def pcp_dstat(self) -> Path:
        """That, behind the name dstat."""
        path = self.bin / "dstat"
        path.symlink_to(self.command("pcp-dstat", PCP))
        return path

    def stranger(self) -> Path:
        """Somebody's own file where a copy of the plugin goes."""
        path = self.home / ".dstat" / "dstat_gpu.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("print('mine')\n", encoding="ascii")
        return path

    def copies(self) -> list[str]:
        """What lies in the home folder."""
        return sorted(str(path.relative_to(self.home)) for path in self.home.rglob("*.py"))
