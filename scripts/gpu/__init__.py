"""What scripts/cuda_model.py is made of: cards (constants of cards), work (what a run does), loops (what
machine code takes), kernels (times of single kernels), passes (of passes, TriForce and prefills) and
tables (what is printed)."""
