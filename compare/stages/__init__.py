"""One comparison a stage: identical inputs to both sides, one judgement of what comes out."""
