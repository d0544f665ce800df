"""What Thinker and Performer must agree on."""
