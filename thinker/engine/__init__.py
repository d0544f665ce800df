"""The model thread: schedules sessions over the pair, and measures them."""
