"""What makes a claim wrong or a run slow: `explanations` and `slower` have the causes, `ranking` weighs them."""
