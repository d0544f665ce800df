"""Model definitions: building blocks, codecs, the family seam and the families that ship."""
