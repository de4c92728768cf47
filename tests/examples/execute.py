"""Execute a notebook: `python execute.py NOTEBOOK FOLDER SOCKET RESULT [whole]`. Run as a process of its own: what the libraries
leave open at its end is nobody else's. With `whole` searches are as long as they say: so outputs are made that are kept.

The kernel is reached over sockets that are files (SOCKET-1, ...): ports of the machine are nobody's.
"""

import re
import sys

import nbclient
import nbformat
from jupyter_client.manager import AsyncKernelManager

path, folder, socket, result, *whole = sys.argv[1:]
notebook = nbformat.read(path, as_version=4)
for cell in () if whole else notebook.cells:  # a few candidates show as much as many
    cell.source = re.sub(r"(max[_-]evals[= ])\d+", r"\g<1>8", cell.source)
manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=socket)
resources = {"metadata": {"path": folder}}
nbclient.NotebookClient(notebook, km=manager, timeout=240, resources=resources).execute(
    cleanup_kc=True  # ends the kernel, and removes what it has left: it is not the client's own
)
nbformat.write(notebook, result)
