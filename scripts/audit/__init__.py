"""What scripts/audit_server.py is made of: server (requests and replies), prompts (cutting documents),
comparison (differences and statistics) and table (what is printed and written)."""
