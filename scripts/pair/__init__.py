"""The built-in pair in PyTorch: the models, their texts, how they are trained and measured."""
