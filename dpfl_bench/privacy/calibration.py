# placeholder until helper writes
