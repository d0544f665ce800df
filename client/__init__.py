"""The Python client: the user's part out, the agent's picture and sound in. Imports protocol alone.

`run` ties it together: `media` (a file plays the user) or `devices` (camera, microphone) are the user's part,
`session` speaks with the server, `playout` keeps sound and picture in step, `recorder` writes them down.
"""
