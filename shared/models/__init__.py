"""Model definitions: building blocks, codecs, the interface of families and the families that ship."""
