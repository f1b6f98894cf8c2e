"""What is decided. Pure: no IO, no clock, no asyncio, no chance of its own."""
