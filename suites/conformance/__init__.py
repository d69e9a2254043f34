"""Does a target keep its protocol's promises?"""
