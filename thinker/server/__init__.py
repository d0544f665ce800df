"""The event loop: HTTP, WebSocket sessions, the queue for slots, media in and out."""
