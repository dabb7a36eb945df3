"""Does a method leave the answers as good as they are: tasks with a score, answered with and without it."""
