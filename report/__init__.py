"""Pictures of a run: a page that stands alone, and drawings for papers. Reads run directories and nothing else."""

from . import plot
from .frame import frame
from .page import Report, report_of

__all__ = ["Report", "frame", "plot", "report_of"]
