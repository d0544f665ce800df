"""What the camera of a user sees: drawn scenes, with what is true of them."""
