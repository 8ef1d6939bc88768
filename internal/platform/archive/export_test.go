package archive

func init() { workFactor = 10 }
