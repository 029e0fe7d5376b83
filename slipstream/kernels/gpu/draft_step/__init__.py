"""One step of a draft model in few launches. Its plain reference is the model layer by layer: engine/plain_step.py."""
