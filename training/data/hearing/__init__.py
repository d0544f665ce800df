"""What the microphone of a user hears: scenes of sound, with what is to be perceived in them."""
