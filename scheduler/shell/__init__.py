"""Thin asyncio around the machine: awaits, deadlines, retries, shutdown. It decides nothing."""
