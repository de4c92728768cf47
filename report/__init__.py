"""Pictures of a run: a self-contained HTML page, and drawings for papers. Reads run directories only."""

from . import plot
from .frame import frame
from .page import Report, report_of

__all__ = ["Report", "frame", "plot", "report_of"]
