# Fills a hash with records, sorts its keys, and prints a number that depends on every record: about 12 MB. Without modules, for
# a machine that has no more than the program (tests/kernels.sh).
my %records;
$records{"key $_"} = [$_, $_ * 7 % 10007, "text of $_"] for 1 .. 25000;
my $sum = 0;
$sum = ($sum * 31 + $records{$_}[1]) % 1000003 for sort keys %records;
print scalar(keys %records), " records, $sum\n";
