"""Edit scripts, the laws that prove them, and the plan that chooses strategies."""
