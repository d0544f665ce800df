"""From text to phones in time: spelling, phones, and the pointer that moves over them."""
