"""Links over collective communication libraries: ccl, nccl, xccl. Imported when such a link is asked about.

backends.py          the libraries, and what a process lacks for each; loads none of them
ready_to_receive.py  both sides of the set-up, and why a receiver says when it is ready
device_transport.py  messages, once the groups are there
ccl/                 oneCCL on CPUs, loaded when a `ccl` link is opened
"""
