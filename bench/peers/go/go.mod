module weir-go

go 1.19
