"""The networks of the pocket family: encoders of the user, two towers, and the passes that run them."""
