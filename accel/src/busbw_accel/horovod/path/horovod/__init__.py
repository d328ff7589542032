"""What `import horovod` finds first if the folder above is in PYTHONPATH.

It makes busbw's modules those of Horovod.
"""

from busbw_accel.horovod import shim

shim.install()
