// Postrider is an email platform that you run yourself.
package main

import (
	"os"

	"github.com/postrider/postrider/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
