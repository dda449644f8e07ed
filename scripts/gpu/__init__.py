"""What scripts/cuda_model.py is made of: cards (their constants), work (what a run does), loops (what
machine code takes), kernels (times of single ones), passes (of passes, TriForce and prefills) and tables
(what is printed)."""
