"""One module for each `scripts/bench NAME`, and what they share.

harness.py          users who never fall silent, a Performer process, sessions driven through a pair
real_time.py        how many sessions a pair holds on the clock
served.py           the same through the real server and WebSocket clients
layout_workers.py   layouts in fresh processes, for layouts.py
endurance.py        hours of units, for history.py
"""
