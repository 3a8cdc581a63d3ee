"""The known cluster, and the policy of asking for it again. Pure."""
