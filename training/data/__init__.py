"""What the pocket model learns from, made on this machine: voices, faces, rooms and dialogues."""
