"""What a run releases, and what each observer gets to see of it: the accountants' only input."""
