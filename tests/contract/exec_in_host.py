"""Runs in a host's own interpreter: executes the plugin in that host, and prints its output.

    python exec_in_host.py HOST_SOURCE PLUGIN [HOST_OPTION...]

The host's source is imported as a module, with its real classes, themes and number formats.
Standard library only.
"""

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any


def imported(path: str) -> ModuleType:
    """The host as a module, without running it."""
    loader = SourceFileLoader("host", path)
    spec = importlib.util.spec_from_loader("host", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["host"] = module
    loader.exec_module(module)
    return module


def plugin_in(host: ModuleType, path: str) -> Any:
    """The plugin, executed inside a function with the host's globals, as both hosts do."""
    names: dict[str, Any] = {}
    exec(Path(path).read_text(encoding="ascii"), vars(host), names)
    return names["dool_plugin" if hasattr(host, "dool") else "dstat_plugin"]()


def main() -> None:
    """Load, check, prepare, then one row."""
    source, path, *options = sys.argv[1:]
    sys.argv = [source]
    host: Any = imported(source)
    before = set(vars(host))
    host.op = host.Options(["--color", "-c", *options])
    host.theme = host.set_theme()
    host.step = host.op.delay
    plugin = plugin_in(host, path)
    plugin.filename = path
    plugin.check()
    plugin.prepare()
    width = plugin.statwidth()
    plugin.extract()
    print(
        json.dumps(
            {
                "added": sorted(set(vars(host)) - before - {"op", "theme", "step", "color"}),
                "width": width,
                "title": plugin.title(),
                "subtitle": plugin.subtitle(),
                "row": plugin.show(),
                "csv_header": plugin.csvsubtitle(),
                "csv_row": plugin.showcsv(),
                "values": plugin.val,
            }
        )
    )


main()
