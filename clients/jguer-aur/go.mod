// go 1.19 is what github.com/Jguer/aur v1.2.3 itself asks for, and what Debian 12 ships.
module larder.example/clients/jguer-aur

go 1.19

require github.com/Jguer/aur v1.2.3

require (
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
)
