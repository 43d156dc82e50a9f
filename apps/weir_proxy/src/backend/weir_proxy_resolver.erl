%% @private
%% @doc Resolves a name in its own process, because that may take long.
-module(weir_proxy_resolver).

-export([resolve/1]).

%% @doc Starts to resolve a name. Sends `{weir_proxy_resolved, Name, Addresses}' to the caller: the IPv4 addresses, or
%% the IPv6 addresses if it has no IPv4. Sends nothing if resolving fails, so that a server keeps its address.
-spec resolve(binary()) -> pid().
resolve(Name) ->
    Caller = self(),
    spawn_link(fun() ->
        case addresses(binary_to_list(Name), [inet, inet6]) of
            [] -> ok;
            Addresses -> Caller ! {weir_proxy_resolved, Name, Addresses}
        end
    end).

addresses(_Name, []) -> [];
addresses(Name, [Family | Others]) ->
    case inet:getaddrs(Name, Family) of
        {ok, [_ | _] = Addresses} -> Addresses;
        _ -> addresses(Name, Others)
    end.
