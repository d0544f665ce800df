"""Who speaks and what is said: synthesizers, speakers, sentences, and the utterances made of them."""
