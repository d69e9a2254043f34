"""Do two clients of one file system see what they are promised?"""
