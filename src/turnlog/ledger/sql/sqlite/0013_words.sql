-- A big import writes one part of the full-text index for each batch. Merging them sixteen at a time wrote most of the
-- index twice; a search of sixty-four parts takes a tenth longer at most.
INSERT INTO passage_words (passage_words, rank) VALUES ('crisismerge', 64);
