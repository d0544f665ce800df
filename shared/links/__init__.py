"""Links carry slices from the Thinker to the Performer and latents back; see base.py for the interface."""
