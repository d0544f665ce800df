"""oneCCL on CPUs as a backend of torch.distributed.

shim.cpp     C functions over oneCCL's C++ interface
building.py  where oneCCL is, and the shim built against it, once for a user
library.py   the shim's functions, called without the interpreter's lock
group.py     a process group over them, and the backend "ccl"
"""
