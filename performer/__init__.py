"""The process that keeps a replica of the KV cache and solves; it never encodes and never decodes."""
