"""`trn verify`: a cluster on AWS from check to removal, within a budget, and what of our predictions was true."""
