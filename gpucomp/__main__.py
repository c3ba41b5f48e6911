"""``python -m gpucomp`` is the ``gpucomp`` command."""

import sys

from gpucomp.cli import main

sys.exit(main())
