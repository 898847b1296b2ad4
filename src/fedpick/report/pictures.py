"""Charts as files: SVG, PDF and PNG, with fedpick's name in them."""

import struct
import zlib
from pathlib import Path
from typing import Any, Literal

from fedpick.report.charts import Chart, to_plain
from fedpick.storage import write_atomic


def picture(chart: Chart, kind: Literal["svg", "pdf", "png"]) -> bytes:
    """The chart as a static picture, the content of a file.

    Args:
        chart: The chart.
        kind: Format of the picture.

    >>> from fedpick.report import dot
    >>> rows = (dot("ours", "", "rand", value=1.0, low=0.5, high=1.5),)
    >>> picture(Chart("one", "dots", title="One", text="One dot.", rows=rows), "svg")[:4]
    b'<svg'
    """
    import vl_convert

    convert = getattr(vl_convert, f"vegalite_to_{kind}")
    content = convert(to_plain(chart), **({"ppi": 144} if kind == "png" else {}))
    return _marked(content.encode() if isinstance(content, str) else bytes(content), kind)


def _marked(content: bytes, kind: str) -> bytes:
    """A picture with fedpick's name in it, which is not shown: only such a file is overwritten."""
    if kind == "svg":
        return content + b"<!-- fedpick -->\n"
    if kind == "pdf":
        return content.rstrip() + b"\n% fedpick\n"
    chunk = b"tEXtSoftware\0fedpick"  # goes before the last chunk of a PNG, IEND
    number = struct.pack(">I", len(chunk) - 4)
    return content[:-12] + number + chunk + struct.pack(">I", zlib.crc32(chunk)) + content[-12:]


def write_chart(chart: Chart, path: str | Path) -> Path:
    """Write the chart to a file, atomically.

    Args:
        chart: The chart.
        path: The file, which ends in .svg, .pdf or .png.
    """
    kind: Any = Path(path).suffix[1:]
    return write_atomic(path, picture(chart, kind), owner="report")
