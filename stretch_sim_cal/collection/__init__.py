"""What a collection of arm poses visits and keeps clear of, from arrays and a description alone: settings, plan, room."""
