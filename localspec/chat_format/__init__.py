"""How chat models want to be spoken to, and how they answer: prompts, constraints and the parts of replies."""
