"""The topology as frozen data: validate, plan, draw, ship and run are independent readers of one value."""
