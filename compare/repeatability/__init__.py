"""Does a candidate give the same answer again, whatever lies around its data and beside its rows?"""
