"""What the frameworks' processes share: the train track's taps, locally made models, the tokenizer's codec."""
